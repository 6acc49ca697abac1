export function start() {}
export function loadChoices() {}
