NAME='corruption'
