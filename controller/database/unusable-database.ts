/** The database cannot be used as it is. The message tells the operator why, and what to do. */
export class UnusableDatabase extends Error {}
