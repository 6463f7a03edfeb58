"""Settings of a manager from a file and the environment: a deployment decides what the program left open, also while it runs."""

from kubeloop.controller.manager.settings.settings import LeaderElectionSettings, ManagerSettings, RateSettings, SettingsFile

__all__ = ["LeaderElectionSettings", "ManagerSettings", "RateSettings", "SettingsFile"]
