"""The declaration of a controller class: its kind, owned and watched kinds, and options."""
