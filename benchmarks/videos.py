"""Random clips of video files through da.VideoReader, beside PyAV alone, which decodes the same clips, and NVDEC alone.

    python benchmarks/videos.py [--size 720 1280] [--frames 16] [--stride 1] [--keys 30] [--videos 4] [--turns 5]

Makes H.264 videos of 300 frames of a moving image. In each turn: PyAV decodes the clips of an epoch to RGB with as
many threads as there are cores; so does torchcodec on the CPU, if it is installed; on a GPU, NVDEC decodes all
stretches, into memory and nothing else; a loader makes batches of clips, resized to 224 x 224, for `--epochs` epochs,
its start included, and for as many again. Prints frames/s, medians of the turns and in brackets their range.

torchcodec needs FFmpeg's shared libraries, in version 4 to 8. Where it finds none, the script starts itself again with
those of PyAV, and both decode with the same ones. torchcodec 0.11.1 fits torch 2.11.
"""

from __future__ import annotations

import argparse
import os
import sys
import sysconfig
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory, mkdtemp
from time import perf_counter

import av
import numpy as np
import torch

import detaug as da
from detaug.demo.shapes import paint
from detaug.files.video_file import read_index
from detaug.machine.cores import available_cores
from detaug.video.nvdec import NvdecPipelines, engines_for, pipelines_for

FRAMES = 300
LINKED = "FFMPEG_OF_PYAV_IS_LINKED"


def write_video(path: Path, size: tuple[int, int], keys: int, seed: int) -> None:
    """Write a video in which an image moves."""
    height, width = size
    picture = np.asarray(paint(seed)[0].resize((width + FRAMES, height + FRAMES // 2)))
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25, width=width, height=height, pix_fmt="yuv420p")
        stream.gop_size, stream.options = keys, {"preset": "fast", "crf": "23"}
        for at in range(FRAMES):
            window = np.ascontiguousarray(picture[at // 2 : at // 2 + height, at : at + width])
            container.mux(stream.encode(av.VideoFrame.from_ndarray(window, format="rgb24")))
        container.mux(stream.encode())


def decode(path: Path, first: int, last: int, stride: int) -> int:
    """Decode the frames of a clip to RGB, from the key frame before it; return their number."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.thread_type = "NONE"
        unit = float(1 / (stream.average_rate * stream.time_base))
        container.seek(round(first * unit), stream=stream, backward=True)
        count = 0
        for frame in container.decode(stream):
            number = round(frame.pts / unit)
            if number >= first and (number - first) % stride == 0:
                frame.to_ndarray(format="rgb24")
                count += 1
            if number >= last:
                return count
    raise AssertionError(f"{path} has no frame {last}")


def decode_with_torchcodec(path: Path, first: int, last: int, stride: int) -> int:
    """Decode the frames of a clip to RGB with a decoder of its own, in one thread; return their number."""
    from torchcodec.decoders import VideoDecoder

    decoder = VideoDecoder(str(path), seek_mode="approximate", num_ffmpeg_threads=1)
    return len(decoder.get_frames_at([*range(first, last + 1, stride)]))


def alone(decode: Callable[[Path, int, int, int], int], reader: da.VideoReader, stride: int) -> int:
    """Decode all clips in random order, with a thread for each core; return the number of frames."""
    numbers = reader.frames.frame_ids[reader.clips]
    order = np.random.default_rng(0).permutation(len(reader.clips))
    clips = [(reader.path(int(reader.clips[at, 0])), int(numbers[at, 0]), int(numbers[at, -1]), stride) for at in order]
    with ThreadPoolExecutor(available_cores()) as pool:
        return sum(pool.map(lambda clip: decode(*clip), clips))


def why_no_torchcodec() -> str | None:
    """Import torchcodec; return the reason if that is not possible."""
    try:
        import torchcodec.decoders  # noqa: F401
    except ImportError:
        return "it is not installed"
    except (RuntimeError, OSError) as error:
        return f"it does not load: {str(error).strip().splitlines()[0]}"
    return None


def start_again_with_libraries() -> None:
    """Start this script again with PyAV's FFmpeg libraries, and Python's, under the names that torchcodec looks for."""
    folder = Path(mkdtemp(prefix="ffmpeg-"))
    for file in Path(av.__file__).parents[1].glob("av.libs/lib[as][vw]*-*.so.*"):
        name, _, version = file.name.partition("-")
        (folder / f"{name}.so.{version.partition('.so.')[2].partition('.')[0]}").symlink_to(file)
    python = Path(sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("INSTSONAME"))
    if ".so" in python.name and python.exists():
        (folder / python.name).symlink_to(python)
    path = f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "LD_LIBRARY_PATH": path, LINKED: "1"})


def nvdec_alone(reader: da.VideoReader) -> float:
    """Return the frames/s of the decoder of the loader."""
    stretches, device = reader.stretches, torch.device("cuda", torch.cuda.current_device())
    engines = engines_for(read_index(reader.video_files[0]), device)
    threads = pipelines_for(engines)
    decoder = NvdecPipelines(stretches, device, threads)
    work = [stretches.frames(each) for each in np.unique(stretches.of_clips)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(decoder.decode, work[:threads]))  # makes the pipelines
        found = rate(lambda: sum(map(len, pool.map(decoder.decode, work * 6))))
    decoder.close()
    return found


def through_loader(reader: da.VideoReader, options: argparse.Namespace) -> tuple[float, float]:
    """Return the frames/s of the first epochs, with the start, and of as many again."""
    start = perf_counter()
    recipe = [da.Resize((224, 224)), da.Normalize()]
    loader: da.Loader[da.ClipBatch] = da.Loader(
        reader, recipe, options.batch_size, device=options.device, last_batch="partial"
    )

    def epochs() -> int:
        count = sum(batch.frame.numel() for _ in range(options.epochs) for batch in loader)
        if options.device != "cpu":
            torch.cuda.synchronize()
        return count

    with loader:
        return epochs() / (perf_counter() - start), rate(epochs)


def rate(task: Callable[[], int]) -> float:
    start = perf_counter()
    return task() / (perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, nargs=2, default=(720, 1280), metavar=("HEIGHT", "WIDTH"))
    parser.add_argument("--frames", type=int, default=16)
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--keys", type=int, default=30, help="frames from a key frame to the next")
    parser.add_argument("--videos", type=int, default=4)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=4, help="clips")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    decoders = {"PyAV alone": decode, "torchcodec alone": decode_with_torchcodec}
    if reason := why_no_torchcodec():
        if reason.startswith("it does not load") and LINKED not in os.environ:
            start_again_with_libraries()
        print(f"without torchcodec: {reason}", flush=True)
        del decoders["torchcodec alone"]
    with TemporaryDirectory() as folder:
        with ProcessPoolExecutor() as pool:
            for seed in range(options.videos):
                pool.submit(write_video, Path(folder) / f"{seed}.mp4", options.size, options.keys, seed)
        reader = da.VideoReader(folder, frames=options.frames, stride=options.stride, cache=False)
        columns: dict[str, list[float]] = {}
        for _ in range(options.turns):
            found = {name: rate(partial(alone, each, reader, options.stride)) for name, each in decoders.items()}
            if options.device != "cpu":
                found["NVDEC alone"] = nvdec_alone(reader)
            found["VideoReader with its start"], found["VideoReader"] = through_loader(reader, options)
            print(", ".join(f"{name} {value:,.0f}" for name, value in found.items()), flush=True)
            for name, value in found.items():
                columns.setdefault(name, []).append(value)
    for name, rates in columns.items():
        print(f"{name}: {median(rates):,.0f} frames/s ({min(rates):,.0f} to {max(rates):,.0f})")
    for name in [each for each in columns if "alone" in each]:
        ratios = [b / a for a, b in zip(columns[name], columns["VideoReader"], strict=True)]
        print(f"VideoReader / {name}: {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
