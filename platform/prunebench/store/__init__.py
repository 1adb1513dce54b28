"""What is recorded and how it is read back: Parquet files, one writer, atomic commits."""
