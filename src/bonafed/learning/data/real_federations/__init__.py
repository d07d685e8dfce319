"""Data sets whose clients are real: hospitals, countries, schools, each with what it recorded itself."""
