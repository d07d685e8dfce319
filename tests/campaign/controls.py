NAME='controls'
