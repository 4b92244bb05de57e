"""One thread of torch a process: the tests run in several processes, and their models are small."""

try:
    import torch
except ImportError:  # the tests here are skipped
    pass
else:
    torch.set_num_threads(1)
