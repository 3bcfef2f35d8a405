.PHONY: demo test quick lowest docs bench lint fmt peers clean

demo test quick lowest docs bench lint fmt peers clean:
	@python3 run.py $@
