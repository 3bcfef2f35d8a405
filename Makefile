.PHONY: demo test quick lowest docs lint fmt peers clean

demo test quick lowest docs lint fmt peers clean:
	@python3 run.py $@
