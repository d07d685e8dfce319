NAME='mutation'
