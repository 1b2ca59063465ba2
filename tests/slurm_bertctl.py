"""`bertctl` beside a Slurm of one's own.

It asks for the queue twice a second, and waits neither for NFS nor for the site's next look at its
limits.
"""

from bertctl.cli.main import entry
from bertctl.sweeps import executors, slurm_jobs, slurm_queue

if __name__ == "__main__":
    slurm_queue._SECONDS_BETWEEN_POLLS = 0.5
    slurm_jobs.SECONDS_UNSEEN = 1
    executors._SECONDS_BETWEEN_SUBMISSIONS = 5
    entry()
