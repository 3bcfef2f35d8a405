.PHONY: demo test docs lint fmt peers clean

demo test docs lint fmt peers clean:
	@python3 run.py $@
