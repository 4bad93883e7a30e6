/** The result of a check. A note is worth knowing but is not a fault. */
export type Finding = { about: string; state: 'ok' | 'note' | 'fault'; text: string; remedy?: string }

export const ok = (about: string, text: string): Finding => ({ about, state: 'ok', text })
export const note = (about: string, text: string): Finding => ({ about, state: 'note', text })
export const fault = (about: string, text: string, remedy: string): Finding => ({ about, state: 'fault', text, remedy })

/** Turns a failed check into a fault, so that the other checks still run. */
export async function guarded(about: string, check: () => Promise<Finding[]>): Promise<Finding[]> {
  try {
    return await check()
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error)
    return [fault(about, `cannot be checked: ${text.split('\n')[0]}`, 'see the error message')]
  }
}
