"""What there is to read: arrays, files, tables, sequences, and the dataset of them."""
