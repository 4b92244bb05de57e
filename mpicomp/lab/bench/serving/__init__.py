"""The cost of a round by the way of averaging: the root, every rank its share, or MPI_Allreduce."""
