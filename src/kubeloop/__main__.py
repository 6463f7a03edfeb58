"""``python -m kubeloop``: the command line."""

from kubeloop.cli import main

if __name__ == "__main__":
    main()
