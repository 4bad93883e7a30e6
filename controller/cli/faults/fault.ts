/** An ordinary fault: what is wrong and the way out, both without a full stop. The remedy starts with a capital. */
export type Fault = { what: string; remedy: string }

export const sentenceOf = ({ what, remedy }: Fault): string => `${what}. ${remedy}.`
