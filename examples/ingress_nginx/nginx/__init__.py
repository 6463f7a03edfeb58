"""The model as NGINX's configuration, with and without Lua, and the NGINX process."""
