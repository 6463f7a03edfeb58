"""Settings of a manager from a file and the environment: a deployment decides what the program left open, also while it runs."""

from kubeloop.controller.manager.settings.loading import SettingsFile
from kubeloop.controller.manager.settings.model import LeaderElectionSettings, ManagerSettings, RateSettings

__all__ = ["LeaderElectionSettings", "ManagerSettings", "RateSettings", "SettingsFile"]
