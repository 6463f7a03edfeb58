"""Settings of a manager from a file and the environment, which a deployment can also change while the manager runs."""

from kubeloop.controller.manager.settings.settings import LeaderElectionSettings, ManagerSettings, RateSettings, SettingsFile

__all__ = ["LeaderElectionSettings", "ManagerSettings", "RateSettings", "SettingsFile"]
