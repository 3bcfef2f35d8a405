.PHONY: demo test lint fmt peers clean

demo test lint fmt peers clean:
	@python3 run.py $@
