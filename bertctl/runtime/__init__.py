"""Device, precision, threads, seeds, batches."""
