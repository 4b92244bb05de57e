"""What a round costs by the ranks that average: the root, every rank its share, MPI_Allreduce."""
