"""Stream side: windows, scoring and the Faust worker; the same core replays recordings."""
