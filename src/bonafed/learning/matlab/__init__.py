"""Files of MATLAB."""
