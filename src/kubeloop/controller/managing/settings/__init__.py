"""Settings of a manager from a file and the environment: a deployment decides what the program left open, also while it runs."""

from kubeloop.controller.managing.settings.loading import SettingsFile
from kubeloop.controller.managing.settings.model import LeaderElectionSettings, ManagerSettings, RateSettings

__all__ = ["LeaderElectionSettings", "ManagerSettings", "RateSettings", "SettingsFile"]
