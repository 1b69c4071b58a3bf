package discord

// Validate implements config.Validator.
func (c *Config) Validate(name string, wrong func(key, format string, args ...any)) {
	if _, err := parseBase(c.APIBase); err != nil {
		wrong("api_base", "expected an address such as https://discord.com")
	}
	isID := func(id string) bool { return checkID(id) == nil }
	c.Gate.Validate(name, isID, isID, wrong)
}
