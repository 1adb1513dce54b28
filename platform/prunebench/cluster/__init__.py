"""Ray: actors that are shells around a worker, the executor, job submission. The only importer of ray."""
