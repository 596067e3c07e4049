"""What is sent in the lab: trading sessions, sensors, feeds, and who subscribes to what."""
