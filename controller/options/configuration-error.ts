/** A wrong or missing setting; the message tells the operator what to change. */
export class ConfigurationError extends Error {}
