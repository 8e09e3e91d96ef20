"""Other people's recordings: tables of text, turned into recordings of ours."""
