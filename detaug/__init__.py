"""Object-detection augmentation on NVIDIA DALI, boxes never out of step with the pixels."""
