"""The claims of the paper on joint client selection and privacy compensation."""
