/** An invalid or missing setting. The message tells the operator what to change. */
export class ConfigurationError extends Error {}
