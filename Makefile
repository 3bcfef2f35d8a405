.PHONY: demo test quick lowest fuzz docs bench lint fmt peers clean

demo test quick lowest fuzz docs bench lint fmt peers clean:
	@python3 run.py $@
