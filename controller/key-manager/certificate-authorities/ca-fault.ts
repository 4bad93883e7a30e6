/** A CA, or our account there, cannot do what it should. The message is for operators. */
export class CaFault extends Error {}
