"""Programs that stand in for the commands of the first minutes: good ones, bad ones, and those that hang.

READY and PIDS become paths: a pipe that is opened when the program hangs, a file for process numbers.
"""

PROGRAMS = {
    "good": "print('noise'); print('answer: 42'); print('bye')",
    "bad": "import sys; print('what went wrong'); sys.exit(3)",
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "leaving": (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        "open('PIDS', 'w').write(str(child.pid))\n"
    ),
    "stubborn": (
        "import os, signal, subprocess, sys\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        "open('PIDS', 'w').write(f'{os.getpid()} {child.pid}')\n"
        "open('READY', 'w').close()\n"
        "signal.pause()\n"
    ),
    "measuring": (
        "import signal, sys, pathlib\n"
        "from tests.bench.rows import rows\n"
        "from bench.store.journal import Journal\n"
        "folder = pathlib.Path(sys.argv[1]) / 'device'\n"
        "folder.mkdir()\n"
        "journal = Journal.named(folder, '20260101T000000Z-x')\n"
        "journal.append(*rows(3, run_id='r', device='device'))\n"
        "open('READY', 'w').close()\n"
        "signal.pause()\n"
    ),
}
