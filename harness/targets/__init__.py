"""What is tested: a package a target. `Target` says what each must answer."""
