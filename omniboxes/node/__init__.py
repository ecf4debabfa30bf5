"""The browser tier of one machine: node server, instance servers, browsers."""
