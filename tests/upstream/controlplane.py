"""The real kube-controller-manager and kube-scheduler, beside kubeloop's server without controllers."""

from __future__ import annotations

from pathlib import Path

from tests.realserver.serving import free_ports


def commands(programs: Path, kubeconfig: Path, keys: Path, home: Path) -> dict[str, list[str]]:
    """Return the commands of kube-controller-manager and kube-scheduler, by their names.

    Args:
        programs: The folder that holds both programs.
        kubeconfig: An administrator's, of the server.
        keys: The folder with the server's authority and its key for tokens of service accounts (``--cert-dir``).
        home: A folder for their certificates.
    """
    ports = free_ports(2)
    common = [
        f"--kubeconfig={kubeconfig}", f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}",
        "--leader-elect=false", "--bind-address=127.0.0.1",
    ]  # fmt: skip
    manager = [
        str(programs / "kube-controller-manager"), *common, f"--secure-port={ports[0]}", f"--cert-dir={home / 'manager'}",
        "--use-service-account-credentials", f"--service-account-private-key-file={keys / 'sa.key'}", f"--root-ca-file={keys / 'ca.crt'}",
        f"--cluster-signing-cert-file={keys / 'ca.crt'}", f"--cluster-signing-key-file={keys / 'ca.key'}",
    ]  # fmt: skip
    scheduler = [str(programs / "kube-scheduler"), *common, f"--secure-port={ports[1]}", f"--cert-dir={home / 'scheduler'}"]
    return {"kube-controller-manager": manager, "kube-scheduler": scheduler}
