"""Streams: one package a layer; current rows are merged behind the hot path."""
