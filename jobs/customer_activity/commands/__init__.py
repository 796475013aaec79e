"""The commands of `activity`: thin, one module a group; what they do is in the layers below."""
