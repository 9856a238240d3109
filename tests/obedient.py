"""Runs what its standard input says: stands in for a measuring process in test_forkserver.py."""

import os
import signal
import sys
import time

if __name__ == "__main__":
    exec(sys.stdin.read(), {"os": os, "signal": signal, "sys": sys, "time": time})
