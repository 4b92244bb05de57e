"""A program with torch that srun starts alone, by the lines and the program that the pages of docs/ show."""

from __future__ import annotations

import re
import sys

import pytest

from tests.cluster.conftest import ROOT
from tests.cluster.slurm import free_ports

pytest.importorskip("torch", reason="no torch: pip install -e '.[torch]'")


def test_the_lines_for_torch_start_as_many_processes_as_tasks(slurm, tmp_path):
    """On both nodes.  Their names are not hosts here, where all nodes are this machine: so its address."""
    page = (ROOT / "docs" / "cluster.md").read_text()
    ((lines),) = re.findall(r"(    #SBATCH .*\n    export MASTER_ADDR=.*\n    srun .*\n)", page)
    hosts = '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
    assert hosts in lines
    script = "#!/bin/bash\n#SBATCH --output=out\n" + re.sub("^    ", "", lines, flags=re.MULTILINE)
    script = script.replace(hosts, "127.0.0.1").replace("29500", str(free_ports(1)[0]))
    script = script.replace("exec python ", f"exec {sys.executable} ")  # that of PATH may have no torch
    assert sys.executable in script
    (tmp_path / "job.sh").write_text(f"{script}echo first {hosts}\n")
    programs = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "torch.md").read_text(), flags=re.DOTALL)
    (program,) = (text for text in programs if 'dist.init_process_group("gloo")' in text)
    (tmp_path / "train.py").write_text(f"{program}import os\nprint(os.environ['SLURMD_NODENAME'])\n")
    slurm.submit(tmp_path, "job.sh")
    slurm.wait_for_jobs()
    said = (tmp_path / "out").read_text()
    assert re.search(r"^4 workers: \S+ KB up, \S+ KB down$", said, re.MULTILINE), said
    assert len(set(re.findall(r"^node\d$", said, re.MULTILINE))) == 2, said
    assert re.search(r"^first node\d$", said, re.MULTILINE), said
