/** The result of a check. A note is worth knowing but is not a fault. The remedy is a command, or what to change. */
export type Finding = { about: string; state: 'ok' | 'note' | 'fault'; text: string; remedy?: string }

export const ok = (about: string, text: string): Finding => ({ about, state: 'ok', text })
export const note = (about: string, text: string): Finding => ({ about, state: 'note', text })
export const fault = (about: string, text: string, remedy: string): Finding => ({ about, state: 'fault', text, remedy })

/** Turns a failed check into a fault, so that the other checks still run. @param explain what is wrong, and the remedy */
export async function guarded(
  about: string,
  check: () => Promise<Finding[]> | Finding[],
  explain: (error: unknown) => { what: string; remedy: string },
): Promise<Finding[]> {
  try {
    return await check()
  } catch (error) {
    const { what, remedy } = explain(error)
    return [fault(about, what, remedy)]
  }
}
