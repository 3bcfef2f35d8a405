"""Trees as plain arrays: conversion, evaluation and checks."""
