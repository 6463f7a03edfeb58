"""What a controller class says about itself: kind, what it owns and watches, how it is called."""
