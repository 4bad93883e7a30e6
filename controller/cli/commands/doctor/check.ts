/** What one check found. A note is worth knowing and no fault. */
export type Finding = { about: string; state: 'ok' | 'note' | 'fault'; text: string; remedy?: string }

export const ok = (about: string, text: string): Finding => ({ about, state: 'ok', text })
export const note = (about: string, text: string): Finding => ({ about, state: 'note', text })
export const fault = (about: string, text: string, remedy: string): Finding => ({ about, state: 'fault', text, remedy })

/** A check that itself fails is a fault too, and does not keep the others from being made. */
export async function guarded(about: string, check: () => Promise<Finding[]>): Promise<Finding[]> {
  try {
    return await check()
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error)
    return [fault(about, `cannot be checked: ${text.split('\n')[0]}`, 'see the words of the error')]
  }
}
