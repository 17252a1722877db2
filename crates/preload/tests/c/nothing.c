/* Only ends. */
int main(void) {
    return 0;
}
