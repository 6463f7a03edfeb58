"""The scheduler: facts about nodes, pods and volumes, plugins that filter and score nodes, and the controller that binds pods."""
