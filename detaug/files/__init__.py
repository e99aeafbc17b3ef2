"""Files of others: paths and addresses, text, headers of images and videos; and writing all or nothing."""
