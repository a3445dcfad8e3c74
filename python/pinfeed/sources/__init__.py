"""Sources of samples (arrays, files, tables, sequences), and the datasets over them."""
